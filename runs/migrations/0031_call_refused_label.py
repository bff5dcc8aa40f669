"""The label of the end reason ``call_refused`` covers errors of the model client too."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0030_outputs_are_tries")]

    operations = [
        migrations.AlterField(
            model_name="run",
            name="end_reason",
            field=models.CharField(
                blank=True,
                choices=[
                    ("all_steps_passed", "All steps passed"),
                    ("step_failed", "A step did not pass"),
                    ("provider_error", "The provider could not be reached"),
                    ("call_refused", "The call failed for good"),
                    ("missing_input", "A step had no input"),
                    ("expression_error", "An expression failed"),
                    ("budget_exceeded", "The budget was used up"),
                    ("deadline_exceeded", "The time limit was reached"),
                    ("configuration", "The flow can't run here"),
                    ("crashed", "Its workers died"),
                    ("internal_error", "ToolFlow failed"),
                    ("cancelled", "Cancelled"),
                ],
                default="",
                max_length=32,
            ),
        ),
    ]
