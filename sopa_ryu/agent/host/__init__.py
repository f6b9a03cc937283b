"""What the agent changes on a host, and puts back."""
