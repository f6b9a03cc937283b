"""What has happened to the fabric: since when, by whom, why. Kept on disk, and asked for by time and element."""
