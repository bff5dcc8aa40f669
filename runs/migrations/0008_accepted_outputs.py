from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0007_daily_issues_by_step"),
    ]

    operations = [
        migrations.AddField(
            model_name="attempt",
            name="is_accepted",
            field=models.BooleanField(
                default=False,
                help_text="It did not pass, and its step accepted it as the best; known once the run has ended.",
            ),
        ),
        migrations.AddField(
            model_name="dailyruns",
            name="accepted",
            field=models.PositiveBigIntegerField(
                default=0,
                help_text="Of those that succeeded, runs in which a step did not pass and had its best output accepted.",
            ),
        ),
        migrations.AddField(
            model_name="run",
            name="accepted_count",
            field=models.PositiveIntegerField(default=0, help_text="Steps whose best output was accepted."),
        ),
        migrations.AlterField(
            model_name="run",
            name="end_reason",
            field=models.CharField(
                blank=True,
                choices=[
                    ("all_steps_passed", "All steps passed"),
                    ("step_failed", "A step did not pass"),
                    ("stalled", "A step was stuck"),
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
