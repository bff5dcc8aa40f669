"""What the API takes and answers: each body, query and answer is one pydantic model, which is its schema as well."""
