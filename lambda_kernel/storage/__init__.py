"""S3 as the gateway and the serving process ask it; nothing here knows what is stored."""
