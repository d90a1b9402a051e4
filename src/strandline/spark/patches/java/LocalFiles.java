/**
 * Hadoop's files of this machine, whose permissions are set by the system: Hadoop starts a process for each of them. And
 * what a folder holds is told anew of those files alone that have changed since it was last told: the system is asked
 * once for each, in place of three times, and no name is taken apart again. Hadoop passes over a file whose name Java
 * cannot say; here it is told of, empty and as old as can be, so that whoever is to read it finds that it cannot.
 */
public class LocalFiles extends org.apache.hadoop.fs.RawLocalFileSystem {
    /** How many files and folders are remembered at most. */
    private static final int REMEMBERED = 100000;
    /** All that is told of a file, but for when it was last read. */
    private static final String ASKED = "unix:size,lastModifiedTime,mode,uid,gid";

    /** What Java has in place of what it cannot say. */
    private static final String UNSAID = "\uFFFD";

    /** By folder, and in it by name: what was asked of a file, and what was told of it. */
    private final java.util.HashMap told = new java.util.HashMap();
    private int remembered = 0;

    public void setPermission(org.apache.hadoop.fs.Path path, org.apache.hadoop.fs.permission.FsPermission permission)
            throws java.io.IOException {
        // As a number, since the names that Java has for permissions leave out the sticky bit.
        Integer mode = Integer.valueOf(permission.toShort());
        java.nio.file.Files.setAttribute(pathToFile(path).toPath(), "unix:mode", mode, new java.nio.file.LinkOption[0]);
    }

    public org.apache.hadoop.fs.FileStatus[] listStatus(org.apache.hadoop.fs.Path folder) throws java.io.IOException {
        java.io.File here = pathToFile(folder);
        String[] names = here.list();
        if (names == null) {
            return super.listStatus(folder);
        }
        java.util.Map before = toldOf(folder);
        java.util.Map now = new java.util.HashMap(2 * names.length);
        java.util.ArrayList found = new java.util.ArrayList(names.length);
        for (int i = 0; i < names.length; i++) {
            Object[] known = before == null ? null : (Object[]) before.get(names[i]);
            Object[] each = look(folder, new java.io.File(here, names[i]), names[i], known);
            if (each != null) {
                now.put(names[i], each);
                found.add(each[1]);
            }
        }
        remember(folder, now);
        return (org.apache.hadoop.fs.FileStatus[]) found.toArray(new org.apache.hadoop.fs.FileStatus[0]);
    }

    private synchronized java.util.Map toldOf(org.apache.hadoop.fs.Path folder) {
        return (java.util.Map) told.get(folder);
    }

    private synchronized void remember(org.apache.hadoop.fs.Path folder, java.util.Map now) {
        java.util.Map before = (java.util.Map) told.remove(folder);
        remembered -= before == null ? 0 : before.size() + 1;
        if (remembered + now.size() + 1 > REMEMBERED) {
            told.clear();
            remembered = 0;
        }
        if (now.size() + 1 <= REMEMBERED) {
            told.put(folder, now);
            remembered += now.size() + 1;
        }
    }

    /** What a file says of itself, and what is told of it; null if there is no such file. */
    private Object[] look(org.apache.hadoop.fs.Path folder, java.io.File file, String name, Object[] known)
            throws java.io.IOException {
        Object says = null;
        try {
            says = java.nio.file.Files.readAttributes(file.toPath(), ASKED, new java.nio.file.LinkOption[0]);
        } catch (java.io.IOException unknown) {
            // Gone, or a link that leads nowhere: Hadoop is asked.
        } catch (java.nio.file.InvalidPathException unknown) {
            // A name that this JVM's encoding cannot say: Hadoop is asked.
        }
        if (says != null && known != null && says.equals(known[0])) {
            return known;
        }
        // Of three parts, or a colon in a name would begin an address.
        org.apache.hadoop.fs.Path part = new org.apache.hadoop.fs.Path(null, null, name);
        org.apache.hadoop.fs.Path path = new org.apache.hadoop.fs.Path(folder, part);
        try {
            return new Object[] {says, getFileStatus(path)};
        } catch (java.io.FileNotFoundException gone) {
            if (!name.contains(UNSAID)) {
                return null;
            }
            return new Object[] {says, new org.apache.hadoop.fs.FileStatus(0, false, 1, 0, 0, makeQualified(path))};
        }
    }
}
