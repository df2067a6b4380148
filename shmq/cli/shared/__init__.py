"""What commands have in common: flags, targets, input and output."""
