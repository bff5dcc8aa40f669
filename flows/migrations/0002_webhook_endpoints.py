from django.db import migrations


class Migration(migrations.Migration):
    # Addresses and secrets are copied there first.
    dependencies = [("flows", "0001_initial"), ("runs", "0005_webhook_endpoints")]

    operations = [
        migrations.DeleteModel(name="WebhookSecretChange"),
        migrations.RemoveField(model_name="flow", name="webhook_url"),
    ]
