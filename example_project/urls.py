"""Serve the admin, which is all that the example has to look at."""

from django.contrib import admin
from django.urls import path

urlpatterns = [path("admin/", admin.site.urls)]
