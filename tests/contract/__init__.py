"""What outside users rely on, recorded, and compared with what this version answers."""
