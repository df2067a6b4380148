"""What every transport's broker, queue and message must do: tests over the contract alone."""
