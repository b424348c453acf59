from __future__ import annotations

from django.db import migrations

import django_setnx_lock.contrib.fencing


class Migration(migrations.Migration):
    dependencies = [
        ("shop", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="order",
            name="fence",
            field=django_setnx_lock.contrib.fencing.FenceField(),
        ),
    ]
