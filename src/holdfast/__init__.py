"""Durable background jobs in the database you already have."""
