"""Starting, watching and ending processes, for supervisors of any kind."""
