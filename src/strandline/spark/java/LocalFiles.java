/**
 * Hadoop's files of this machine, whose permissions are set by the system: Hadoop starts a process for each of them. And
 * what a folder holds is told anew of those files alone that have changed since it was last told: the system is asked
 * once for each, in place of three times, and no name is taken apart again.
 */
public class LocalFiles extends org.apache.hadoop.fs.RawLocalFileSystem {
    private static final int FOLDERS = 64;
    private static final int NAMES = 100000;
    /** All that is told of a file, but for when it was last read. */
    private static final String ASKED = "unix:size,lastModifiedTime,mode,uid,gid";

    /** By folder, and in it by name: what was asked of a file, and what was told of it. */
    private final java.util.concurrent.ConcurrentHashMap told = new java.util.concurrent.ConcurrentHashMap();

    public void setPermission(org.apache.hadoop.fs.Path path, org.apache.hadoop.fs.permission.FsPermission permission)
            throws java.io.IOException {
        // As a number, since the names that Java has for permissions leave out the sticky bit.
        Integer mode = Integer.valueOf(permission.toShort());
        java.nio.file.Files.setAttribute(pathToFile(path).toPath(), "unix:mode", mode, new java.nio.file.LinkOption[0]);
    }

    public org.apache.hadoop.fs.FileStatus[] listStatus(org.apache.hadoop.fs.Path folder) throws java.io.IOException {
        java.io.File here = pathToFile(folder);
        String[] names = here.list();
        if (names == null || names.length > NAMES) {
            return super.listStatus(folder);
        }
        java.util.Map before = (java.util.Map) told.get(folder);
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
        if (told.size() >= FOLDERS) {
            told.clear();
        }
        told.put(folder, now);
        return (org.apache.hadoop.fs.FileStatus[]) found.toArray(new org.apache.hadoop.fs.FileStatus[0]);
    }

    /** What a file says of itself, and what is told of it; null if it is gone meanwhile. */
    private Object[] look(org.apache.hadoop.fs.Path folder, java.io.File file, String name, Object[] known)
            throws java.io.IOException {
        try {
            Object says = java.nio.file.Files.readAttributes(file.toPath(), ASKED, new java.nio.file.LinkOption[0]);
            if (known != null && known[0].equals(says)) {
                return known;
            }
            // Of three parts, or a colon in a name would begin an address.
            org.apache.hadoop.fs.Path part = new org.apache.hadoop.fs.Path(null, null, name);
            return new Object[] {says, getFileStatus(new org.apache.hadoop.fs.Path(folder, part))};
        } catch (java.nio.file.NoSuchFileException gone) {
            return null;
        } catch (java.io.FileNotFoundException gone) {
            return null;
        }
    }
}
