// SPDX-License-Identifier: Apache-2.0
//
// How long a process takes from its start to its first tensor: with an empty cache_dir, then with
// the one that this process has left. PoCL has a cache of its own; each process gets an empty folder
// for it, so that only the library's shows.
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.hpp"
#include "ours.hpp"
#include "pictures.hpp"

namespace {

// Gone with everything in it.
class Folder {
  public:
    Folder()
    {
        std::string name =
            (std::filesystem::temp_directory_path() / "bench_preprocess-XXXXXX").string();

        if (!mkdtemp(name.data()))
            fail("%s: %s: is there a writable folder for temporary files (TMPDIR)?", name.c_str(),
                 std::strerror(errno));
        path = name;
    }
    ~Folder()
    {
        std::error_code ignored;

        std::filesystem::remove_all(path, ignored);
    }
    Folder(const Folder &) = delete;
    Folder &operator=(const Folder &) = delete;

    std::string path;
};

struct Process {
    double seconds;         // to the first tensor
    double device, recipe;  // of which: opening the device, making the recipe
    unsigned long checksum; // of the tensor
};

std::string output_of(const std::vector<std::string> &words, const std::vector<std::string> &env)
{
    std::vector<char *> argv, envp;
    posix_spawn_file_actions_t actions;
    std::string text;
    char part[256];
    int out[2], status = 0;
    pid_t pid = -1;
    ssize_t n;

    for (const std::string &w : words)
        argv.push_back(const_cast<char *>(w.c_str()));
    for (const std::string &e : env)
        envp.push_back(const_cast<char *>(e.c_str()));
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    if (pipe2(out, O_CLOEXEC) != 0)
        fail("no pipe for a process: %s", std::strerror(errno));
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    const int rc = posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, argv.data(), envp.data());
    posix_spawn_file_actions_destroy(&actions);
    close(out[1]);
    while (rc == 0 && ((n = read(out[0], part, sizeof part)) > 0 || (n < 0 && errno == EINTR)))
        text.append(part, n > 0 ? static_cast<size_t>(n) : 0);
    close(out[0]);
    if (rc != 0)
        fail("starting a process: %s", std::strerror(rc));
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail("cache: the process for the first tensor failed (status %d): see its message above",
             status);
    return text;
}

Process start(const std::string &device, const std::string &cache_dir)
{
    const Folder pocl;
    std::vector<std::string> env = {"POCL_CACHE_DIR=" + pocl.path};
    double end = 0;
    Process p{};

    for (char **e = environ; *e; e++)
        if (std::strncmp(*e, "POCL_CACHE_DIR=", 15) != 0)
            env.emplace_back(*e);
    const double begin = now_s(); // the same clock in all processes
    const std::string line =
        output_of({"bench_preprocess", "--first-frame", cache_dir, device}, env);
    if (std::sscanf(line.c_str(), "%lf %lf %lf %lx", &end, &p.device, &p.recipe, &p.checksum) != 4)
        fail("cache: the process for the first tensor said \"%s\"", line.c_str());
    p.seconds = end - begin;
    return p;
}

} // namespace

int first_frame(const std::string &select, const std::string &cache_dir)
{
    const double t0 = now_s();
    Device device(select, cache_dir);
    const double t1 = now_s();
    Letterbox640 job;
    const std::vector<uint8_t> px(clb_image_bytes(&job.img), 77);
    const double t2 = now_s();
    Ours ours(device, job.recipe, px);
    const double t3 = now_s();
    unsigned long sum = 5381;

    ours.receive();
    ours.run();
    const double end = now_s();
    for (const uint8_t byte : ours.result())
        sum = sum * 33 + byte;
    std::printf("%.9f %.9f %.9f %lx\n", end, t1 - t0, t3 - t2, sum);
    return 0;
}

void case_cache(const Options &o, Report &report)
{
    std::vector<double> cold, warm, device, cold_recipe, warm_recipe;

    {
        Device named(o.device);

        report.machine(named.name());
    }
    for (int i = 0; i < o.pairs; i++) {
        const Folder folder;
        const Process first = start(o.device, folder.path);
        const Process second = start(o.device, folder.path);

        if (first.checksum != second.checksum)
            fail("cache: the tensor by a kernel from disk is another one than by a kernel just "
                 "compiled");
        if (std::filesystem::is_empty(folder.path))
            fail("cache: the library has left nothing in its cache_dir");
        cold.push_back(first.seconds);
        warm.push_back(second.seconds);
        device.push_back(second.device);
        cold_recipe.push_back(first.recipe);
        warm_recipe.push_back(second.recipe);
    }
    report.line("cache", "empty cache_dir", warm, cold, {Target::SHARE, 0.25});
    report.figure("cache", "both", "of which opening the device", "ms", median(device) * 1e3);
    report.figure("cache", "warm", "of which pool and recipe", "ms", median(warm_recipe) * 1e3);
    report.figure("cache", "cold", "of which pool and recipe", "ms", median(cold_recipe) * 1e3);
}
