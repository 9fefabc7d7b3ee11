"""A machine without a C compiler is named by `doctor`, unless the helpers are off by choice."""

import pytest

from meshwright.cluster.doctor import gather_facts, run_checks


@pytest.mark.parametrize(("switch", "named"), [(None, True), ("1", True), ("0", False)])
def test_a_missing_compiler_is_named_unless_the_helpers_are_off(tmp_path, monkeypatch, switch, named):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("MESHWRIGHT_HELPER", raising=False)
    if switch is not None:
        monkeypatch.setenv("MESHWRIGHT_HELPER", switch)

    found = [finding.found for finding in run_checks([gather_facts()]) if finding.check == "c-compiler"]

    assert found == (["no C compiler on PATH (cc, gcc, clang, or what CC names)"] if named else [])


def test_the_compiler_that_cc_names_is_enough(tmp_path, monkeypatch):
    compiler = tmp_path / "my-cc"
    compiler.write_text("")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", "my-cc")

    assert not gather_facts().lacks_compiler
