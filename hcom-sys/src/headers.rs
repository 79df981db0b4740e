//! The headers as data.

use std::path::Path;

use include_dir::{Dir, include_dir};

static INCLUDE: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/include");

/// Every header of this crate: its path as programs include it (`acl/acl.h`), and its text.
pub fn headers() -> impl Iterator<Item = (&'static Path, &'static [u8])> {
    let mut folders = vec![&INCLUDE];
    std::iter::from_fn(move || {
        let folder = folders.pop()?;
        folders.extend(folder.dirs());
        Some(folder.files().map(|file| (file.path(), file.contents())))
    })
    .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_there() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
        for name in [
            "acl/acl.h",
            "hccl/hccl.h",
            "aclnnop/aclnn_add.h",
            "hcom_ext.h",
        ] {
            let (_, text) = headers()
                .find(|(path, _)| *path == Path::new(name))
                .expect(name);
            assert_eq!(text, std::fs::read(folder.join(name)).unwrap(), "{name}");
        }
        assert!(headers().all(|(path, _)| folder.join(path).is_file()));
    }
}
