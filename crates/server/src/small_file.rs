//! Files that somebody names and that are never large, such as settings: read whole, and refused where they go on for too long, as a device does.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// The most that is read, in bytes. A settings file has some thousand, the authorities of a whole system have some hundred thousand.
const BYTES_MAX: u64 = 16 * 1024 * 1024;

/// All of it.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(io::Error::other("it is longer than 16 MiB"));
    }
    Ok(bytes)
}

/// All of it, as text.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(|_| io::Error::other("it is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_an_end_is_refused() {
        for read in [|path| read(path).map(drop), |path| read_text(path).map(drop)] {
            let refused = read(Path::new("/dev/zero")).expect_err("it has no end");
            assert_eq!(refused.to_string(), "it is longer than 16 MiB");
        }
    }

    #[test]
    fn the_longest_is_whole() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file can be made");
        file.as_file().set_len(BYTES_MAX).expect("it can be that long");
        assert_eq!(read(file.path()).expect("it is read").len() as u64, BYTES_MAX);
        assert_eq!(read_text(Path::new("/dev/null")).expect("it is read"), "");
        std::fs::write(file.path(), b"\xff").expect("it can be written");
        assert_eq!(read_text(file.path()).expect_err("no text").to_string(), "it is not UTF-8");
    }
}
