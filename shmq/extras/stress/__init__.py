"""Runs producer and consumer processes on one queue and checks that it kept its promises."""
