"""What every backend shares: campaigns, records and the description of the machine."""
