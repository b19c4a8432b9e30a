"""The measurements that builds for a GPU obey: found, compared with a model, measured again."""
