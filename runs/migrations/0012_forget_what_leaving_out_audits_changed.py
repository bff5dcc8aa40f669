"""What leaving out each audit changes is stored in another form: it is worked out again where it is asked for."""

from typing import Any

from django.db import migrations


def forget(apps: Any, schema_editor: Any) -> None:
    """Delete the backtests that left out each audit."""
    apps.get_model("runs", "Backtest").objects.filter(leaves_out_each=True).delete()


class Migration(migrations.Migration):
    dependencies = [("runs", "0011_backtest_tries")]

    operations = [migrations.RunPython(forget, migrations.RunPython.noop, elidable=True)]
