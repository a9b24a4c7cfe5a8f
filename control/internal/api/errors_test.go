package api

import (
	"os"
	"path/filepath"
	"testing"
)

// The message advises sudo only for the user's default socket, and only if root's socket is there.
func TestSocketOfRootsMillrace(t *testing.T) {
	folder := t.TempDir()
	roots := filepath.Join(folder, "roots")
	if isAnothers(DefaultSocket(), roots) {
		t.Error("there is no millrace of root's")
	}
	if err := os.WriteFile(roots, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if !isAnothers(DefaultSocket(), roots) || isAnothers(filepath.Join(folder, "named"), roots) || isAnothers(roots, roots) {
		t.Error("only the default socket of another user is meant")
	}
}
