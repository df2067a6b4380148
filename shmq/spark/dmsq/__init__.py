"""``format("dmsq")``: the files of durable queues."""
