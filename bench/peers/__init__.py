"""The peers of shmq and shmq itself: one file per peer, one class per way of using it."""
