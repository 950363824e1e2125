"""How models are listed."""

from callsmith.wire.model_list import ListedModel, write_running


def test_a_loaded_model_says_when_it_will_be_unloaded() -> None:
    never, soon = (write_running(ListedModel("m", expires=expires))["expires_at"] for expires in (None, 1_700_000_000.0))
    assert str(soon).startswith("2023-11-14T22:13:20")
    assert never != soon and str(never) > str(soon)
