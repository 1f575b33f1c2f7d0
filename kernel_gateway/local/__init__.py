"""The embedded default: SeaweedFS as S3 and STS, a local Lambda service, bubblewrap."""
