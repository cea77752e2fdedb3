# A release sets the version and the checksums (`scripts/deploy/formula.ts`).
class Sealpost < Formula
  desc "Durable, end-to-end encrypted message broker on Postgres"
  homepage "https://sealpost.example"
  version "0.1.0"
  license "MIT"

  on_macos do
    on_arm do
      url "https://sealpost.example/releases/#{version}/sealpost-darwin-arm64"
      sha256 "0000000000000000000000000000000000000000000000000000000000000000"
    end
    on_intel do
      url "https://sealpost.example/releases/#{version}/sealpost-darwin-x64"
      sha256 "0000000000000000000000000000000000000000000000000000000000000000"
    end
  end

  on_linux do
    on_arm do
      url "https://sealpost.example/releases/#{version}/sealpost-linux-arm64"
      sha256 "0000000000000000000000000000000000000000000000000000000000000000"
    end
    on_intel do
      url "https://sealpost.example/releases/#{version}/sealpost-linux-x64"
      sha256 "0000000000000000000000000000000000000000000000000000000000000000"
    end
  end

  def install
    bin.install Dir["sealpost-*"].first => "sealpost"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/sealpost --version")
  end
end
