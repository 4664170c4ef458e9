"""A small travel product. Its Celery app is imported with it, so that the web process knows whom to wake."""

from example_project.celery import app as celery_app

__all__ = ["celery_app"]
