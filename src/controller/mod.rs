//! See DESIGN in docs/.
