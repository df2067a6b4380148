"""What goes in comes out, while processes are killed at random."""
