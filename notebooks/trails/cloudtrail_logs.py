"""Writes three days of CloudTrail-style logs, the same ones every time, into ./logs."""

import gzip
import json
import pathlib
import random
from datetime import datetime, timedelta, timezone

USERS = ["alice", "bob", "carol", "deploy", "backup"]
QUIET = [
    ("s3.amazonaws.com", "GetObject"),
    ("s3.amazonaws.com", "ListObjects"),
    ("ec2.amazonaws.com", "DescribeInstances"),
    ("sts.amazonaws.com", "GetCallerIdentity"),
    ("lambda.amazonaws.com", "Invoke"),
]
BREAK_IN = [
    ("sts.amazonaws.com", "GetCallerIdentity", None),
    ("iam.amazonaws.com", "ListUsers", None),
    ("iam.amazonaws.com", "AttachUserPolicy", "AccessDenied"),
    ("iam.amazonaws.com", "CreateAccessKey", None),
    ("s3.amazonaws.com", "ListBuckets", None),
    ("s3.amazonaws.com", "GetObject", None),
    ("cloudtrail.amazonaws.com", "StopLogging", "AccessDenied"),
]
BEGIN = datetime(2026, 3, 2, tzinfo=timezone.utc)


def event(number, when, user, address, source, name, error):
    return {
        "eventID": f"{number:08x}",
        "eventTime": when.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "eventSource": source,
        "eventName": name,
        "awsRegion": "eu-central-1",
        "sourceIPAddress": address,
        "userIdentity": {"type": "IAMUser", "userName": user},
        "errorCode": error,
    }


def events():
    draw = random.Random(20260302)  # noqa: S311
    for number in range(6000):
        when = BEGIN + timedelta(seconds=draw.uniform(0, 3 * 86400))
        user = draw.choice(USERS)
        error = "AccessDenied" if draw.random() < 0.004 else None
        address = f"10.0.{USERS.index(user)}.{draw.randrange(2, 6)}"
        yield event(number, when, user, address, *draw.choice(QUIET), error)
    when = BEGIN + timedelta(days=1, hours=2, minutes=41)
    for number, (source, name, error) in enumerate(BREAK_IN * 3, start=6000):
        when += timedelta(seconds=draw.uniform(2, 40))
        yield event(number, when, "backup", "203.0.113.77", source, name, error)


days = {}
for each in sorted(events(), key=lambda each: each["eventTime"]):
    days.setdefault(each["eventTime"][:10], []).append(each)
for day, records in days.items():
    path = pathlib.Path("logs", day.replace("-", "/"), "events.json.gz")
    path.parent.mkdir(parents=True, exist_ok=True)
    # Without a time in its header: the same bytes every time.
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, records)).encode(), mtime=0))
    print(path, len(records), "events")
