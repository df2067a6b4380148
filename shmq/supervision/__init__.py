"""What a supervisor needs to start, watch and end processes, whatever they do."""
