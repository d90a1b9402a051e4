/** Hadoop's files of this machine, whose permissions are set by the system: Hadoop starts a process for each of them. */
public class LocalFiles extends org.apache.hadoop.fs.RawLocalFileSystem {
    public void setPermission(org.apache.hadoop.fs.Path path, org.apache.hadoop.fs.permission.FsPermission permission)
            throws java.io.IOException {
        // As a number, since the names that Java has for permissions leave out the sticky bit.
        Integer mode = Integer.valueOf(permission.toShort());
        java.nio.file.Files.setAttribute(pathToFile(path).toPath(), "unix:mode", mode, new java.nio.file.LinkOption[0]);
    }
}
