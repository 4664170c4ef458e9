from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    operations = [
        migrations.CreateModel(
            name="Itinerary",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("booking_reference", models.CharField(max_length=32)),
                ("passenger", models.CharField(max_length=200)),
                ("flight", models.CharField(max_length=16)),
                ("note", models.TextField(blank=True, default="")),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={"ordering": ("-created_at", "-pk"), "verbose_name_plural": "itineraries"},
        ),
    ]
