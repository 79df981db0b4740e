//! Finding and opening the library.

#![expect(unsafe_code, reason = "dlopen and dlsym")]

use std::collections::BTreeMap;
use std::ffi::{OsString, c_void};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::symbol::{FUNCTIONS, Group};
use crate::{LoadError, MissingSymbol, Place, Table};

/// Environment variable that names a library file or a folder of libraries.
pub const LIBRARY_PATH_VARIABLE: &str = "HCOM_LIBRARY_PATH";
/// Environment variable of the Ascend toolkit; the libraries lie in its `lib64`.
pub const ASCEND_HOME_VARIABLE: &str = "ASCEND_HOME_PATH";

static FALLBACK: OnceLock<&'static Table> = OnceLock::new();

/// Offers a table to [`Library::search`] for hosts without a library. The first registration counts.
pub fn register_fallback(table: &'static Table) {
    let _ = FALLBACK.set(table);
}

/// Where a library came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// A path or table that the program named.
    Explicit,
    /// The variable `HCOM_LIBRARY_PATH`.
    LibraryPath,
    /// `lib64` under `ASCEND_HOME_PATH`.
    AscendHome,
    /// The registered fallback.
    Fallback,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Explicit => "explicit path",
            Self::LibraryPath => LIBRARY_PATH_VARIABLE,
            Self::AscendHome => ASCEND_HOME_VARIABLE,
            Self::Fallback => "registered fallback",
        })
    }
}

/// An implementation of the C ABI, its functions resolved on first use.
///
/// Opened files are never closed again: threads of theirs may still run, and the functions handed out
/// outlive the `Library`.
#[derive(Debug)]
pub struct Library {
    source: Source,
    origin: Origin,
    skipped: Vec<Place>,
    /// Per function of [`FUNCTIONS`] its address, or null before the first successful look-up.
    addresses: Box<[AtomicPtr<c_void>]>,
}

#[derive(Debug)]
enum Source {
    Table(&'static Table),
    Files(Files),
}

impl Library {
    /// Opens a shared object, or a folder that holds the libraries of a CANN release.
    ///
    /// A file is asked first for every function; when it bears a name of a CANN release, its
    /// neighbours are asked too.
    ///
    /// Opening runs the file's initialisers, and its functions are taken to have the signatures of the
    /// headers: name only a library that is meant as an implementation of them.
    ///
    /// # Errors
    /// [`LoadError`] when nothing there opens, or what opens is no ACL runtime (no `aclInit`).
    pub fn open(path: impl AsRef<Path>) -> Result<Self, LoadError> {
        Self::open_from(path.as_ref(), Origin::Explicit)
            .map_err(|place| LoadError { tried: vec![place] })
    }

    /// A library of functions in this process.
    pub fn from_table(table: &'static Table) -> Self {
        Self::new(Source::Table(table), Origin::Explicit)
    }

    /// Finds the library: the explicit path, `HCOM_LIBRARY_PATH`, `$ASCEND_HOME_PATH/lib64`, the
    /// registered fallback, in this order.
    ///
    /// The first two are orders: when one is given and does not open, the search ends there, so that a
    /// mistake does not silently run on something else. A toolkit that does not open is a
    /// [`skipped`](Self::skipped) place.
    ///
    /// # Errors
    /// [`LoadError`] with every place that was tried and the reason against it.
    pub fn search(explicit: Option<&Path>) -> Result<Self, LoadError> {
        search(
            explicit,
            |name| std::env::var_os(name).filter(|value| !value.is_empty()),
            FALLBACK.get().copied(),
        )
    }

    /// Where the library was found.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The file or folder; `None` for a table.
    pub fn path(&self) -> Option<&Path> {
        match &self.source {
            Source::Table(_) => None,
            Source::Files(files) => Some(&files.path),
        }
    }

    /// The table; `None` for files.
    pub fn table(&self) -> Option<&'static Table> {
        match &self.source {
            Source::Table(table) => Some(table),
            Source::Files(_) => None,
        }
    }

    /// Places that the search passed over, with the reasons.
    pub fn skipped(&self) -> &[Place] {
        &self.skipped
    }

    /// Whether the library exports a function of the headers.
    pub fn has(&self, name: &str) -> bool {
        FUNCTIONS
            .iter()
            .position(|function| function.name == name)
            .is_some_and(|index| self.resolve(index).is_ok())
    }

    /// Address of `FUNCTIONS[index]`, never null.
    #[inline]
    pub(crate) fn resolve(&self, index: usize) -> Result<*mut c_void, MissingSymbol> {
        // Relaxed: the address is the whole message, and what it points to was published by the
        // loader (dlopen, or the start of the process) before any thread could find it.
        let known = self.addresses[index].load(Ordering::Relaxed);
        if known.is_null() {
            self.look_up(index)
        } else {
            Ok(known)
        }
    }

    #[cold]
    fn look_up(&self, index: usize) -> Result<*mut c_void, MissingSymbol> {
        let function = FUNCTIONS[index];
        let found = match &self.source {
            Source::Table(table) => table.find(function.name).ok_or_else(|| {
                vec![Place::new(
                    format!("{} {}", table.name, table.version),
                    "does not implement it",
                )]
            }),
            Source::Files(files) => files.find(function.name, function.group),
        };
        match found {
            Ok(address) => {
                self.addresses[index].store(address, Ordering::Relaxed);
                Ok(address)
            }
            Err(tried) => Err(MissingSymbol {
                symbol: function.name,
                since: function.since,
                tried,
            }),
        }
    }

    fn new(source: Source, origin: Origin) -> Self {
        Self {
            source,
            origin,
            skipped: Vec::new(),
            addresses: FUNCTIONS.iter().map(|_| AtomicPtr::default()).collect(),
        }
    }

    fn open_from(path: &Path, origin: Origin) -> Result<Self, Place> {
        let place = |reason: String| Place::new(format!("{origin} {}", path.display()), reason);
        let files = Files::open(path).map_err(place)?;
        match files.find("aclInit", Group::Runtime) {
            Ok(_) => Ok(Self::new(Source::Files(files), origin)),
            Err(tried) => Err(place(
                tried
                    .iter()
                    .map(Place::to_string)
                    .collect::<Vec<_>>()
                    .join("; "),
            )),
        }
    }
}

/// [`Library::search`] over a given environment and fallback.
fn search(
    explicit: Option<&Path>,
    variable: impl Fn(&str) -> Option<OsString>,
    fallback: Option<&'static Table>,
) -> Result<Library, LoadError> {
    let mut tried = Vec::new();
    let ordered = match explicit {
        Some(path) => Some((path.to_owned(), Origin::Explicit)),
        None => {
            tried.push(Place::new(Origin::Explicit.to_string(), "not given"));
            variable(LIBRARY_PATH_VARIABLE).map(|path| (PathBuf::from(path), Origin::LibraryPath))
        }
    };
    if let Some((path, origin)) = ordered {
        return Library::open_from(&path, origin).map_err(|place| {
            tried.push(place);
            LoadError { tried }
        });
    }
    tried.push(Place::new(LIBRARY_PATH_VARIABLE, "not set"));
    let mut skipped = Vec::new();
    match variable(ASCEND_HOME_VARIABLE) {
        None => tried.push(Place::new(ASCEND_HOME_VARIABLE, "not set")),
        Some(home) => match Library::open_from(&Path::new(&home).join("lib64"), Origin::AscendHome)
        {
            Ok(library) => return Ok(library),
            Err(place) => skipped.push(place),
        },
    }
    match fallback {
        Some(table) => {
            let mut library = Library::new(Source::Table(table), Origin::Fallback);
            library.skipped = skipped;
            Ok(library)
        }
        None => {
            tried.append(&mut skipped);
            tried.push(Place::new(Origin::Fallback.to_string(), "none registered"));
            Err(LoadError { tried })
        }
    }
}

/// An opened file; leaked, so that nothing of it can end before the process.
type Object = &'static libloading::Library;

/// Shared objects: one file, a folder of them, or a file and its neighbours.
#[derive(Debug)]
struct Files {
    path: PathBuf,
    file: Option<Object>,
    folder: Option<PathBuf>,
    /// Files of the folder opened so far, by name; an error is the loader's text.
    opened: Mutex<BTreeMap<&'static str, Result<Object, String>>>,
}

impl Files {
    fn open(path: &Path) -> Result<Self, String> {
        // Absolute: a bare name would make the loader search its own list of folders. Links stay, as
        // the name they bear says what the file is.
        let path = std::path::absolute(path).map_err(|error| error.to_string())?;
        let about = path.metadata().map_err(|error| error.to_string())?;
        if about.is_dir() {
            return Ok(Self {
                file: None,
                folder: Some(path.clone()),
                path,
                opened: Mutex::default(),
            });
        }
        let known = path.file_name().is_some_and(|name| {
            let all = FUNCTIONS
                .iter()
                .flat_map(|f| f.group.layouts().iter().copied());
            all.flatten().any(|soname| name == *soname)
        });
        let folder = known.then(|| path.parent().map(Path::to_owned)).flatten();
        Ok(Self {
            file: Some(open_object(&path)?),
            folder,
            path,
            opened: Mutex::default(),
        })
    }

    /// The function's address, or each file with the reason against it.
    fn find(&self, symbol: &str, group: Group) -> Result<*mut c_void, Vec<Place>> {
        let mut tried = Vec::new();
        if let Some(object) = self.file {
            match address(object, symbol) {
                Ok(address) => return Ok(address),
                Err(reason) => tried.push(Place::new(self.path.display().to_string(), reason)),
            }
        }
        let Some(folder) = &self.folder else {
            return Err(tried);
        };
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        for layout in group.layouts() {
            let mut any = false;
            for soname in *layout {
                let path = folder.join(soname);
                let object = opened
                    .entry(soname)
                    .or_insert_with(|| open_object(&path))
                    .clone();
                any |= object.is_ok();
                match object.and_then(|object| address(object, symbol)) {
                    Ok(address) => return Ok(address),
                    Err(reason) => tried.push(Place::new(path.display().to_string(), reason)),
                }
            }
            if any {
                break;
            }
        }
        Err(tried)
    }
}

fn open_object(path: &Path) -> Result<Object, String> {
    if !path.exists() {
        return Err("no such file".to_owned());
    }
    // SAFETY: initialisers of the file run here. The path is absolute, and the person who named it or
    // installed the toolkit vouches for it as for the program itself.
    let library = unsafe { libloading::Library::new(path) };
    match library {
        Ok(library) => Ok(Box::leak(Box::new(library))),
        Err(error) => Err(chain(&error)),
    }
}

fn address(object: Object, symbol: &str) -> Result<*mut c_void, String> {
    // SAFETY: the symbol is read as an address only; its use as a function is `symbol.rs`'s affair.
    let found = unsafe { object.get::<*mut c_void>(symbol.as_bytes()) };
    match found {
        Ok(address) if !address.is_null() => Ok(*address),
        _ => Err(format!("does not export {symbol}")),
    }
}

/// The error with its sources, as the loader's own words hide in them.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests;
