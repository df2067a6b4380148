"""The transports behind the contract: today, attaching to the local host's memory."""
