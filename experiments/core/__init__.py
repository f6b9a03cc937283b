"""Parts that all backends share: campaigns, records, the description of the machine."""
