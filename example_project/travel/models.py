"""What the travel product itself keeps. Seats are the airline's; itineraries are ours."""

from django.db import models


class Itinerary(models.Model):
    """Tell a passenger which seat was booked for them.

    Nothing here forbids two rows for one booking: that there is one is the agent's doing, and a test counts them.
    """

    booking_reference = models.CharField(max_length=32)
    passenger = models.CharField(max_length=200)
    flight = models.CharField(max_length=16)
    note = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("-created_at", "-pk")
        verbose_name_plural = "itineraries"

    def __str__(self) -> str:
        return f"{self.passenger} on {self.flight} ({self.booking_reference})"
