"""What remote clients ask for beside messages, one module for each subject."""
