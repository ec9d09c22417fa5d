import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.retry.RetryNTimes;

/** A candidate of Curator's: says `stands` and `leads`, and leaves when it reads a line. */
public class Candidate {
  public static void main(String[] arguments) throws Exception {
    String hosts = arguments[0], path = arguments[1], name = arguments[2];
    CuratorFramework client =
        CuratorFrameworkFactory.newClient(hosts, 4000, 4000, new RetryNTimes(10, 200));
    client.start();
    try (LeaderLatch latch = new LeaderLatch(client, path, name)) {
      latch.start();
      System.out.println("stands");
      latch.await();
      System.out.println("leads");
      System.in.read();
    }
    System.out.println("left");
    client.close();
  }
}
