"""The cache of compiled programs is filled, and used by what compiles the same again."""

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.compilation_cache import compilation_cache

import obax

OPTIONS = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)


@pytest.fixture
def as_it_was():
    before = {name: getattr(jax.config, name) for name in OPTIONS}
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.mark.usefixtures("as_it_was")
def test_what_was_compiled_is_found_again(tmp_path):
    folder = obax.enable_compilation_cache(tmp_path / "programs")
    assert folder.stat().st_mode & 0o077 == 0
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)

    def made():
        def mine(x):
            return jnp.sin(x) @ jnp.cos(x).T

        return jax.jit(mine)

    def entries():
        return {path.name for path in folder.glob("jit_mine*-cache")}

    made()(jnp.ones((3, 3)))
    assert len(entries()) == 1
    made()(jnp.ones((3, 3)))
    assert len(entries()) == 1
    made()(jnp.ones((4, 4)))
    assert len(entries()) == 2


@pytest.mark.usefixtures("as_it_was")
def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="folder must be a folder for compiled programs"):
        obax.enable_compilation_cache(tmp_path / "file")
