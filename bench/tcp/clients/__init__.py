"""The usual Python clients of the brokers, one file each."""
