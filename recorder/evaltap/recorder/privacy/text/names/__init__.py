"""Names of secrets, phone numbers, cards and ids, and where a text has them."""
