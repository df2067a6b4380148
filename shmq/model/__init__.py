"""What messages, filters, exchanges, schemas and tables mean, for every transport."""
