"""The embedded default: SeaweedFS as S3 and STS, the local Lambda service, bubblewrap containers."""
