"""The channel to the host agents: its protocol, and the controller's side of it."""
