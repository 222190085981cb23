use incrowd_device::Fields;

/// Something a person can be shown.
///
/// Where actions have weights of their own (a task with slots), its name says which; where features
/// describe person and action together, its fields do. A name alone, or fields alone, become an
/// action by themselves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Action<'a> {
    /// Its name in the model.
    pub name: &'a str,
    /// What is known about it.
    pub fields: &'a Fields,
}

static NO_FIELDS: Fields = Fields::new();

impl<'a> From<&'a Fields> for Action<'a> {
    fn from(fields: &'a Fields) -> Self {
        Self { name: "", fields }
    }
}

impl<'a> From<&'a str> for Action<'a> {
    fn from(name: &'a str) -> Self {
        Self { name, fields: &NO_FIELDS }
    }
}

impl<'a> From<&&'a str> for Action<'a> {
    fn from(name: &&'a str) -> Self {
        (*name).into()
    }
}

impl<'a> From<&'a String> for Action<'a> {
    fn from(name: &'a String) -> Self {
        name.as_str().into()
    }
}
