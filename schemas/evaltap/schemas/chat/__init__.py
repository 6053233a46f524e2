"""Messages of chats in the forms of providers and frameworks, read into one shape."""
